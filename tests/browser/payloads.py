"""Fifty texts that would do something if anything of the page took them for more than text.

Each that runs calls `alert` or sets `window.canary`.
"""

from __future__ import annotations

RUN = "window.canary=1"

PAYLOADS: tuple[str, ...] = (
    f"<script>{RUN}</script>",
    f"</script><script>{RUN}</script>",
    f"<ScRiPt>{RUN}</sCrIpT>",
    f"<script src=data:text/javascript,{RUN}></script>",
    f"<script type=module>{RUN}</script>",
    f"<img src=x onerror={RUN}>",
    f"<img src=x onerror='{RUN}'>",
    f"<img/src=x/onerror={RUN}>",
    f'"><img src=x onerror={RUN}>',
    f"'><img src=x onerror={RUN}>",
    f"`><img src=x onerror={RUN}>",
    f"<svg onload={RUN}>",
    f"<svg><script>{RUN}</script></svg>",
    f"<svg><animate onbegin={RUN} attributeName=x dur=1s>",
    f"<svg><a xlink:href='javascript:{RUN}'><text y=9>x</text></a></svg>",
    f"</title><svg/onload={RUN}>",
    f"</textarea><svg/onload={RUN}>",
    f"</pre></code><svg/onload={RUN}>",
    f"--><svg/onload={RUN}>",
    f"]]><svg/onload={RUN}>",
    f"<iframe src='javascript:parent.{RUN}'></iframe>",
    f"<iframe srcdoc='<script>parent.{RUN}</script>'></iframe>",
    f"<object data='javascript:{RUN}'></object>",
    f"<embed src='javascript:{RUN}'>",
    f"<body onload={RUN}>",
    f"<details open ontoggle={RUN}>x</details>",
    f"<input autofocus onfocus={RUN}>",
    f"<select autofocus onfocus={RUN}></select>",
    f"<video><source onerror={RUN}></video>",
    f"<audio src=x onerror={RUN}>",
    f"<marquee onstart={RUN}>x</marquee>",
    f"<form action='javascript:{RUN}'><button>x</button></form>",
    f"<a href='javascript:{RUN}'>x</a>",
    f"<math><mi xlink:href='data:x,<script>{RUN}</script>'>x</mi></math>",
    f"<template><script>{RUN}</script></template>",
    f"<noscript><p title='</noscript><img src=x onerror={RUN}>'>",
    f"<style>@import 'javascript:{RUN}'</style>",
    f"<link rel=stylesheet href='data:text/css,*{{background:url(javascript:{RUN})}}'>",
    f"<meta http-equiv=refresh content='0;url=javascript:{RUN}'>",
    "<base href='https://evil.example/'>",
    f"javascript:{RUN}",
    f"JaVaScRiPt:{RUN}//",
    f"data:text/html,<script>{RUN}</script>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "&#60;script&#62;alert(1)&#60;/script&#62;",
    "${alert(1)}",
    "{{constructor.constructor('alert(1)')()}}",
    "';alert(1);//",
    "\\u003cscript\\u003ealert(1)\\u003c/script\\u003e",
    "__proto__",
)
assert len(set(PAYLOADS)) == 50
