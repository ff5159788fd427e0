// The page without a mouse. Letters are keys only where nobody is typing.

import { byId } from "./dom.js";

const typing = (node) => node instanceof HTMLElement && (node.isContentEditable || ["TEXTAREA", "SELECT"].includes(node.tagName)
  || (node.tagName === "INPUT" && !["radio", "checkbox", "button", "submit"].includes(node.type)));

function move(step) {
  const rows = [...byId("list").querySelectorAll("a.row")].filter((row) => row.offsetParent !== null);
  if (!rows.length) return;
  const at = rows.indexOf(document.activeElement);
  const current = rows.findIndex((row) => row.hasAttribute("aria-current"));
  const from = at >= 0 ? at : current >= 0 ? current : step > 0 ? -1 : rows.length;
  const row = rows[Math.min(rows.length - 1, Math.max(0, from + step))];
  row.focus();
  row.scrollIntoView({ block: "nearest" });
}

export function listen({ go, close, decide }) {
  const help = byId("help");
  const query = byId("query");
  const openHelp = () => help.open || help.showModal();
  const plain = {
    j: () => move(1), ArrowDown: () => move(1),
    k: () => move(-1), ArrowUp: () => move(-1),
    "/": () => query.focus(),
    "?": openHelp,
    d: decide,
    1: () => go("inbox"), 2: () => go("calls"), 3: () => go("runs"),
  };
  byId("help-open").addEventListener("click", openHelp);
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || help.open || byId("desk").hidden) return;
    if (event.key === "Escape") {
      if (typing(document.activeElement)) document.activeElement.blur();
      else close();
      return;
    }
    // In a group of choices and in what scrolls, arrows have their own work.
    const own = event.key.startsWith("Arrow") && document.activeElement?.closest(".detail");
    const act = plain[event.key];
    if (!act || own || typing(document.activeElement)) return;
    event.preventDefault();
    act();
  });
}
