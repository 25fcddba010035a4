/**
 * The script that adds counters to the record of a day. A record is a hash with three fields for each counter:
 *
 *     <counter>     its sum of the day
 *     h <counter>   its hours, as in `8:120,9:31`
 *     m <counter>   its last minutes, of about two hours if it has some in each, by the minute of the day: `540:3,541:28`
 *
 * So one read and one write count the minute, the hour and the day. Its work and its commands depend on the counters that are sent, and
 * not on those in the record: EVALSHA, HMGET and HSET. All reads come first, and the first EXPIRE of a record before all HSET: if a command fails, nothing is
 * counted, and the same counters can be sent again. The first call of a day also drops the hours and minutes of eight days before, if
 * its Redis user may (HKEYS, HDEL).
 *
 *     KEYS  the record of the day, and that of eight days before; with metrics, also that of all time
 *     ARGV  the minute since the epoch, the number of counters of the day, then each counter: its field, and by how much it has grown.
 *           The counters after that number are for the record of all time alone
 *
 * The record of all time has sums, and of a field that begins with `usage ` the highest values of the last minutes: `29411520:900000`.
 * The field `#` has the number of counters. From 2,000 on, further counters keep only their kind and outcome, as in counters.ts.
 */
import { restoreScript } from '../script/built-scripts.ts'
import { STATS_TOTAL_KEY, statsKey } from '../store/keys.ts'
import type { ScriptCall } from '../store/store.ts'
import type { Batch } from './counters.ts'
import type { Measured } from './measurements.ts'

/** How long a record is kept (s): a little longer than `npx sluicegate stats` looks back. */
const KEEP_SECONDS = 401 * 86400

/** A record has hours for eight days. */
const HOURS_MS = 8 * 86400e3

const MINUTE_MS = 60e3

/** The list of what the script writes at its end. */
export const WRITES = 'local writes={}\n'

/** Without `WRITES`. */
export const addCountsBody = `local now=ARGV[1]+0
local function put(text,at,by,from,most)
local last,sum=string.match(text,'(%d+):(%d+)$',-30)
if last and last-at>=0 then
return string.sub(text,1,-1-#sum)..string.format('%.0f',most and math.max(sum,by)or sum+by)
end
text=string.gsub(text,'^(%d+):%d+,?',function(first)if first-from<0 then return''end end)
return text..string.format(text==''and'%.0f:%.0f'or',%.0f:%.0f',at,by)
end
local function add(key,fields,counts,day,full)
local asked,changes,rest={},{},{}
for _,field in ipairs(fields)do
asked[#asked+1]=field
if day then
asked[#asked+1]='h '..field
asked[#asked+1]='m '..field
end
end
local known=redis.call('HMGET',key,'#',unpack(asked))
local size=(known[1]or 0)+0
local function change(field,value)
changes[#changes+1]=field
changes[#changes+1]=value
end
for i,field in ipairs(fields)do
local at=day and 3*i-1 or i+1
local count,by=known[at],counts[i]
local most=string.sub(field,1,6)=='usage '
if count or full or size<2000 then
if not(count or full)then size=size+1 end
change(field,most and put(count or'',now,by,now-2,1)or string.format('%.0f',(count or 0)+by))
if day then
change('h '..field,put(known[at+1]or'',(day-day%60)/60,by,0))
change('m '..field,put(known[at+2]or'',day,by,day-125))
end
elseif not most then
local kind=string.gsub(field,'^(%S+ %S+).*','%1 ~ ~ ~')
rest[kind]=(rest[kind]or 0)+by
end
end
if next(rest)then
local kinds,sums={},{}
for kind,sum in pairs(rest)do
kinds[#kinds+1]=kind
sums[#sums+1]=sum
end
add(key,kinds,sums,day,1)
end
writes[#writes+1]={key,not known[1]and ${KEEP_SECONDS},size,changes}
return not known[1]
end
local fields,counts={},{}
for i=3,#ARGV,2 do
fields[#fields+1]=ARGV[i]
counts[#counts+1]=ARGV[i+1]+0
end
if KEYS[3]then add(KEYS[3],fields,counts)end
for i=#fields,ARGV[2]+1,-1 do fields[i]=nil end
local is_first=add(KEYS[1],fields,counts,now%1440)
for _,each in ipairs(writes)do
if each[2]then redis.call('EXPIRE',each[1],each[2])end
end
for _,each in ipairs(writes)do
redis.call('HSET',each[1],'#',each[3],unpack(each[4]))
if each[2]then redis.call('EXPIRE',each[1],each[2])end
end
if is_first then
for _,field in ipairs(redis.pcall('HKEYS',KEYS[2]))do
if string.find(field,'^[hm] ')then redis.pcall('HDEL',KEYS[2],field)end
end
end
`

export const addCountsText = WRITES + addCountsBody

/** A test compares the digests with the text. */
export const addCountsScript = restoreScript({
  text: addCountsText,
  sha1: {
    keyLocking: '42235bde79d722c8b4fc07d3b888a6bd696ffee5',
    plain: 'acffaea83cc8b256c7583fe275f9c931cb2db2c8',
  },
})

const argumentsOf = (batch: Batch): string[] => batch.flatMap(([field, by]) => [field, String(by)])

/** The call that adds a batch to the record of a day, and with metrics to that of all time. */
export function callFor(batch: Batch, at: Date, measured?: Measured): ScriptCall {
  const { usage = [], totals = [] } = measured ?? {}
  const days = [at, new Date(at.getTime() - HOURS_MS)].map(day => statsKey(day))
  return {
    script: addCountsScript(),
    keys: [...days, ...(measured ? [STATS_TOTAL_KEY] : [])],
    args: [
      ...[Math.floor(at.getTime() / MINUTE_MS), batch.length].map(String),
      ...[batch, usage, totals].flatMap(argumentsOf),
    ],
  }
}
