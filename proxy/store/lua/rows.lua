-- The rows of these keys without their large parts.
local rows = {}
for i, key in ipairs(ARGV) do rows[i] = small_of(key) end
return rows
