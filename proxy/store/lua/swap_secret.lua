-- The store's secret, replaced if it is still the one that is known. What stands there now.
if call('GET', T .. ':secret') == ARGV[1] then call('SET', T .. ':secret', ARGV[2]) end
return call('GET', T .. ':secret')
