/**
 * The script that adds counters to the records of the statistics. A record is a hash with a field for each counter. Its work and its
 * commands depend on the counters that are sent, and not on those in the record: EVALSHA, and for each record HMGET and HSET.
 *
 *     KEYS  three records; with metrics, also that of all time
 *     ARGV  how long each record is kept (s), the number of counters for all records, then each counter: its field, and by how much it
 *           has grown. The counters after that number are for the record of all time alone
 *
 * Of a field that begins with `usage `, the highest value is kept, not the sum. The field `#` has the number of fields. From 2,000 on,
 * further counters keep only their kind and outcome, as in counters.ts.
 */
import { restoreScript } from '../script/built-scripts.ts'
import type { Batch } from './counters.ts'

export const addCountsText = `local fields={}
for i=#KEYS+2,#ARGV,2 do fields[#fields+1]=ARGV[i]end
for r,key in ipairs(KEYS)do
local n=r>3 and #fields or ARGV[#KEYS+1]+0
local known=redis.call('HMGET',key,'#',unpack(fields,1,n))
local size,changes=(known[1]or 0)+0,{}
for i=1,n do
local field,count,by=fields[i],known[i+1],ARGV[#KEYS+1+2*i]
local isUsage=string.sub(field,1,6)=='usage '
if count or size<2000 then
size=count and size or size+1
changes[#changes+1]=field
changes[#changes+1]=string.format('%.0f',isUsage and math.max(count or 0,by)or(count or 0)+by)
elseif not isUsage then
redis.call('HINCRBY',key,(string.gsub(field,'^(%S+ %S+).*','%1 ~ ~ ~')),by)
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
    keyLocking: 'e12a42194ec3de485f6f3a8c40a8e128d1cfcec5',
    plain: '79935167594683b2b5cc98942649e91bb5fc5955',
  },
})
