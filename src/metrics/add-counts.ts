/**
 * The script that adds counters to the records of the statistics: five commands (EVALSHA, MGET, three SETEX), whatever their number.
 * A record is a text, one line for each counter: `<field>\t<count>`.
 *
 *     KEYS  three records
 *     ARGV  how long each record is kept (s), then the counters as in a record
 *
 * A record has at most 2,000 counters, and some more for those of which only kind and outcome are kept, as in counters.ts.
 */
import { restoreScript } from '../script/built-scripts.ts'
import type { Batch } from './counters.ts'

const text = String.raw`local records=redis.call('MGET',unpack(KEYS))
for r,key in ipairs(KEYS)do
local fields,counts={},{}
for field,by in string.gmatch((records[r]or'')..'\n'..ARGV[4],'([^\t\n]+)\t(%d+)')do
if not counts[field]and #fields>=2000 then field=string.gsub(field,'^(%S+ %S+).*','%1 ~ ~ ~')end
if not counts[field]then fields[#fields+1]=field end
counts[field]=(counts[field]or 0)+by
end
for i,field in ipairs(fields)do fields[i]=field..'\t'..string.format('%.0f',counts[field])end
redis.call('SETEX',key,ARGV[r],table.concat(fields,'\n'))
end
`

/** Counters as a record has them. */
export const formatCounts = (batch: Batch): string => batch.map(count => count.join('\t')).join('\n')

/** A test compares the digests with the text. */
export const addCountsScript = restoreScript({
  text,
  sha1: {
    keyLocking: '8d4eda4b2e82cf03c043527eb80b91b9805c50f7',
    plain: '8dfa1a9896ede8a8b50c41330b4fd974d8568a93',
  },
})
