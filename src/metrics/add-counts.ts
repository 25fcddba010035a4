/**
 * The script that adds counters to the records of the statistics. A record is a hash with a field for each counter. Its work and its
 * commands depend on the counters that are sent, and not on those in the record: EVALSHA, and for each record HMGET and HSET.
 *
 *     KEYS  three records
 *     ARGV  how long each record is kept (s), then each counter: its field, and by how much it has grown
 *
 * The field `#` has the number of fields. From 2,000 on, further counters keep only their kind and outcome, as in counters.ts.
 */
import { restoreScript } from '../script/built-scripts.ts'
import type { Batch } from './counters.ts'

export const addCountsText = `local fields={}
for i=4,#ARGV,2 do fields[#fields+1]=ARGV[i]end
for r,key in ipairs(KEYS)do
local known=redis.call('HMGET',key,'#',unpack(fields))
local size,changes=(known[1]or 0)+0,{}
for i,field in ipairs(fields)do
local count,by=known[i+1],ARGV[3+2*i]
if not count and size>=2000 then
redis.call('HINCRBY',key,(string.gsub(field,'^(%S+ %S+).*','%1 ~ ~ ~')),by)
else
size=count and size or size+1
changes[#changes+1]=field
changes[#changes+1]=string.format('%.0f',(count or 0)+by)
end
end
redis.call('HSET',key,'#',size,unpack(changes))
if not known[1]then redis.call('EXPIRE',key,ARGV[r])end
end
`

/** The counters of a batch, as arguments of the script. */
export const argumentsOf = (batch: Batch): string[] => batch.flatMap(([field, by]) => [field, String(by)])

/** A test compares the digests with the text. */
export const addCountsScript = restoreScript({
  text: addCountsText,
  sha1: {
    keyLocking: 'fcceb49797240261f084da6654ac9ae801aa41c0',
    plain: '61b8111a5420254ce9765ff17c285b83b35d1024',
  },
})
