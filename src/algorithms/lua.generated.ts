// Made by `npm run bundle-lua` from the .lua files. Do not edit.

import type { AlgorithmLua } from './lua.ts'

export const FIXED_WINDOW: AlgorithmLua = {
  numbers: ["limit","period","ends"],
  keeps: ["window_start","window_end","count"],
  declare: "",
  read: "window_start = now - now % period\nwindow_end, count = window_start + period, 0\nlocal next_end = window_end + period\n--@ if ends\nlocal first, second, third, fourth = match(ends, '^(%d+) (%d+) (%d+) (%d+)$')\nif first and now < fourth + 0 then\nwindow_start, window_end, next_end = now, first + 0, second + 0\nif now >= window_end then\nwindow_start, window_end, next_end = window_end, next_end, third + 0\nend\nif now >= window_end then\nwindow_start, window_end, next_end = window_end, next_end, fourth + 0\nend\nif now >= window_end then\nwindow_start, window_end, next_end = window_end, next_end, next_end + period\nend\nend\n--@ end\nif idle_at == window_end then\ncount = n\nelseif idle_at == next_end then\nwindow_start, window_end, count = window_end, next_end, n\nend\n",
  check: "if cost > limit then\nretry_after = -1\nelseif count + cost > limit then\nretry_after = window_end - now\nend\n",
  spend: "count = count + cost\n",
  refund: "if spent_at >= window_start and spent_at < window_end then\ncount = count > units and count - units or 0\nend\n",
  standing: "remaining = count < limit and limit - count or 0\nreset_after = count > 0 and window_end - now or 0\n",
  write: "idle_at, n = window_end, count\n",
}

export const GCRA: AlgorithmLua = {
  numbers: ["rate","period","burst"],
  keeps: ["backlog"],
  declare: "",
  read: "backlog = (idle_at - now) * rate - n\nif backlog < 0 or backlog > 2 * (burst * period) then\nbacklog = 0\nend\n",
  check: "local excess = backlog + cost * period - burst * period\nif cost > burst then\nretry_after = -1\nelseif excess > 0 then\nretry_after = ceil_div(excess, rate)\nend\n",
  spend: "backlog = backlog + cost * period\n",
  refund: "local drained = (now - spent_at) * rate - (spent - units) * period\nlocal back = units * period - (drained > 0 and drained or 0)\nbacklog = backlog - (spent_at <= now and back > 0 and back or 0)\nif backlog < 0 then\nbacklog = 0\nend\n",
  standing: "local room = burst * period - backlog\nremaining = room > 0 and floor_div(room, period) or 0\nreset_after = ceil_div(backlog, rate)\n",
  write: "idle_at = ceil_to_ms(now + reset_after)\nn = (idle_at - now) * rate - backlog\n",
}

export const LEAKY_BUCKET: AlgorithmLua = {
  numbers: ["rate","period","burst"],
  keeps: ["content"],
  declare: "",
  read: "content = (idle_at - now) * rate - n\nif content < 0 or content > 2 * (burst * period) then\ncontent = 0\nend\n",
  check: "local excess = content + cost * period - burst * period\nif cost > burst then\nretry_after = -1\nelseif excess > 0 then\nretry_after = ceil_div(excess, rate)\nend\n",
  spend: "delay = ceil_div(content, rate)\ncontent = content + cost * period\n",
  refund: "",
  standing: "local room = burst * period - content\nremaining = room > 0 and floor_div(room, period) or 0\nreset_after = ceil_div(content, rate)\n",
  write: "idle_at = ceil_to_ms(now + reset_after)\nn = (idle_at - now) * rate - content\n",
}

export const SLIDING_LOG: AlgorithmLua = {
  numbers: ["limit","period","log_key"],
  keeps: ["log","head","entries","newest","total","has_room","first","used"],
  declare: "local LOG_ENTRY, LOG_LAYOUT, LOG_NEAR = 11, '>I3I4I4', 32\nlocal function log_bytes_between(log, from, to)\nif log.whole then\nreturn sub(log.whole, (from - 1) * LOG_ENTRY + 1, to * LOG_ENTRY)\nend\nlocal bytes = redis.pcall('GETRANGE', log.key, (from - 1) * LOG_ENTRY, to * LOG_ENTRY - 1)\nreturn type(bytes) == 'string' and bytes or ''\nend\nlocal function read_entry(log, i)\nlocal bytes, at = log.whole, i\nif log.near and i >= log.from and i <= log.to then\nbytes, at = log.near, i - log.from + 1\nelseif not bytes then\nbytes, at = log_bytes_between(log, i, i), 1\nend\nif #bytes < at * LOG_ENTRY then\nreturn 0, 0\nend\nlocal high, low, total = unpack_integers(LOG_LAYOUT, bytes, (at - 1) * LOG_ENTRY + 1)\nreturn high * 4294967296 + low, total\nend\nlocal function write_entry(time, total)\nlocal low = time % 4294967296\nreturn pack_integers(LOG_LAYOUT, (time - low) / 4294967296, low, total % 4294967296)\nend\n",
  read: "entries = n % 1048576\nhead = (n - entries) / 1048576\nlog = { whole = values[log_key] or nil, key = KEYS[log_key] }\nnewest, total, has_room = 0, 0, false\nif entries > 1 and head > 1 and head <= entries and (log.whole or values[log_key] == nil) then\nif log.whole then\nnewest, total = read_entry(log, entries)\nhas_room = #log.whole >= (entries + 1) * LOG_ENTRY\nelse\nlog.from = head - 1\nlog.to = entries - head < 2 * LOG_NEAR and entries + 1 or head + LOG_NEAR\nlog.near = log_bytes_between(log, log.from, log.to)\nlocal last = log.to > entries and sub(log.near, (entries - log.from) * LOG_ENTRY + 1)\nor log_bytes_between(log, entries, entries + 1)\nif #last >= LOG_ENTRY then\nnewest, total = read_entry({ whole = last }, 1)\nhas_room = #last == 2 * LOG_ENTRY\nend\nend\nend\nif newest <= now - period or newest > now + period or ceil_to_ms(newest + period) ~= idle_at then\nentries, head, newest, total = 0, 2, 0, 0\nend\nlocal passed = (now > newest and now or newest) - period\nfirst = head\nlocal beyond, stride = head, 1\nwhile beyond <= entries and read_entry(log, beyond) <= passed do\nfirst, beyond, stride = beyond + 1, beyond + stride, 2 * stride\nend\nif beyond > entries then\nbeyond = entries + 1\nend\nwhile first < beyond do\nlocal middle = floor_div(first + beyond, 2)\nif read_entry(log, middle) > passed then\nbeyond = middle\nelse\nfirst = middle + 1\nend\nend\nused = 0\nif entries > 0 then\nlocal _, before = read_entry(log, first - 1)\nused = (total - before) % 4294967296\nend\n",
  check: "if cost > limit then\nretry_after = -1\nelseif used + cost > limit then\nlocal low, high, stride = first, first, 1\nwhile high < entries do\nlocal _, by_then = read_entry(log, high)\nif (total - by_then) % 4294967296 <= limit - cost then\nbreak\nend\nlow, high, stride = high + 1, high + stride, 2 * stride\nend\nif high > entries then\nhigh = entries\nend\nwhile low < high do\nlocal middle = floor_div(low + high, 2)\nlocal _, by_then = read_entry(log, middle)\nif (total - by_then) % 4294967296 <= limit - cost then\nhigh = middle\nelse\nlow = middle + 1\nend\nend\nretry_after = read_entry(log, low) + period - now\nif retry_after <= 0 or retry_after > 2 * period then\nretry_after, entries, newest, total, used = 0, 0, 0, 0, 0\nend\nend\n",
  spend: "local time = now > newest and now or newest\nlocal entry = write_entry(time, total + cost)\nif time == newest then\nlog_bytes, log_offset = entry, (entries - 1) * LOG_ENTRY\nelseif entries > 0 and has_room then\nlog_bytes, log_offset = entry, entries * LOG_ENTRY\nentries = entries + 1\nelse\nlocal counting = entries > 0 and log_bytes_between(log, first - 1, entries) or write_entry(0, 0)\nentries, first = #counting / LOG_ENTRY + 1, 2\nlog_bytes = counting .. entry .. rep('\\0', (floor_div(entries, 8) + 1) * LOG_ENTRY)\nend\nnewest, used, head = time, used + cost, first\n",
  refund: "local at, last = first, entries\nwhile at < last do\nlocal middle = floor_div(at + last, 2)\nif read_entry(log, middle) < spent_at then\nat = middle + 1\nelse\nlast = middle\nend\nend\nlocal back, spent_then = 0, 0\nif used > 0 then\nlocal time, by_then = read_entry(log, at)\nlocal _, before = read_entry(log, at - 1)\nspent_then = (by_then - before) % 4294967296\nback = time == spent_at and spent_then or 0\nback = back < units and back or units\nback = back < used and back or used\nend\nif back > 0 then\nlocal from = back == spent_then and at + 1 or at\nlocal rest, lowered = { whole = log_bytes_between(log, from, entries) }, {}\nfor i = 1, entries - from + 1 do\nlocal time, by_then = read_entry(rest, i)\nlowered[i] = write_entry(time, by_then - back)\nend\nentries = back == spent_then and entries - 1 or entries\nif #lowered > 0 then\nlog_bytes, log_offset = concat(lowered), (at - 1) * LOG_ENTRY\nelse\nnewest = read_entry(log, entries)\nend\nend\nused = used - back\nif used == 0 or newest <= now - period or newest > now + period then\nentries, newest, used, log_bytes = 0, now - period, 0, nil\nend\n",
  standing: "remaining = used < limit and limit - used or 0\nreset_after = used > 0 and newest + period - now or 0\n",
  write: "idle_at, n = ceil_to_ms(newest + period), head * 1048576 + entries\n",
}

export const SLIDING_WINDOW: AlgorithmLua = {
  numbers: ["limit","period","step"],
  keeps: ["window_end","previous","current","left"],
  declare: "",
  read: "window_end, previous, current = now - now % period + period, 0, 0\nif idle_at == window_end + period or idle_at == window_end + 2 * period then\nwindow_end, previous = idle_at - period, floor_div(n, 8388608)\ncurrent = n - previous * 8388608\nelseif idle_at == window_end then\nprevious = n % 8388608\nend\nleft = ceil_div(window_end - now, step)\nif left > period / step then\nleft = period / step\nend\n",
  check: "local weight = previous < limit and previous or limit\nif cost > limit then\nretry_after = -1\nelseif weight * left + (current + cost) * (period / step) > limit * (period / step) then\nlocal slid_end, room = window_end, limit - current - cost\nif room < 0 then\nslid_end, room, weight = window_end + period, limit - cost, current < limit and current or limit\nend\nretry_after = slid_end - floor_div(room * (period / step), weight) * step - now\nend\n",
  spend: "current = current + cost\n",
  refund: "if spent_at >= window_end - period and spent_at < window_end then\ncurrent = current > units and current - units or 0\nelseif spent_at >= window_end - 2 * period and spent_at < window_end - period then\nprevious = previous > units and previous - units or 0\nend\n",
  standing: "local room = limit * (period / step) - (previous < limit and previous or limit) * left\nremaining = floor_div(room, period / step) - current\nif remaining < 0 then\nremaining = 0\nend\nreset_after = current > 0 and window_end + period - now or previous > 0 and window_end - now or 0\n",
  write: "idle_at, n = window_end + period, previous * 8388608 + current\n",
}

export const TOKEN_BUCKET: AlgorithmLua = {
  numbers: ["rate","period","burst"],
  keeps: ["level"],
  declare: "",
  read: "level = burst * period - ((idle_at - now) * rate - n)\nif level > burst * period or level < -(burst * period) then\nlevel = burst * period\nend\n",
  check: "local missing = cost * period - level\nif cost > burst then\nretry_after = -1\nelseif missing > 0 then\nretry_after = ceil_div(missing, rate)\nend\n",
  spend: "level = level - cost * period\n",
  refund: "local refilled = (now - spent_at) * rate - (spent - units) * period\nlocal back = units * period - (refilled > 0 and refilled or 0)\nlevel = level + (spent_at <= now and back > 0 and back or 0)\nif level > burst * period then\nlevel = burst * period\nend\n",
  standing: "local missing = burst * period - level\nremaining = level > 0 and floor_div(level, period) or 0\nreset_after = ceil_div(missing, rate)\n",
  write: "idle_at = ceil_to_ms(now + reset_after)\nn = (idle_at - now) * rate - (burst * period - level)\n",
}
