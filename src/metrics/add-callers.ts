/**
 * Adds the refused callers of an isolate to the record of the hour, in the script that adds its counters (add-counts.ts): two more
 * commands, HMGET and HSET, and once an hour EXPIRE. The record is a hash with a field for each thing that is counted, such as
 * `limited minute`. A field has a sketch of 20 counters, to which the counts of each caller are added by Space-Saving, as if all of its
 * refusals came at once (top-callers.ts). So of N refusals in the hour, a count is too high by its error at most, which is at most
 * N / 20 + N / 32. The work depends on what is sent and on the 20 counters of each field, and not on the size of the record.
 *
 *     KEYS  after all others: the record
 *     ARGV  after all others: the minute of the hour; each thing that is counted, and its callers as `<name> <count> <error> …`; how many
 *           things there are
 *
 * A counter in the record is `<name> <count> <error> <since> <minutes>`: the minute of the hour since which it has been refused without a
 * pause of more than five minutes, and what was counted in each of the last six minutes with refusals, as in `58:12,59:3`. The field `#`
 * has the number of the others. From 500 on, nothing else is counted.
 */
import { restoreScript } from '../script/built-scripts.ts'
import { callersKey } from '../store/keys.ts'
import type { ScriptCall } from '../store/store.ts'
import { addCountsBody, WRITES } from './add-counts.ts'

/**
 * A caller as it is written in the store: `acme`, `acme:test` for its test keys and test tokens, `192.0.2.0/24`, `account=42`, or `-` if
 * nothing that may be kept names it.
 */
export type CallerName = string

export interface Tally {
  count: number
  /** By how much the count can be too high. */
  error: number
}

/** By what is counted, `limited <rule>` or `shadow_limited <rule>`, and by the name of the caller. */
export type Sketches = ReadonlyMap<string, ReadonlyMap<CallerName, Tally>>

/** How long a record is kept (s): as long as the statistics of an hour. */
const KEEP_SECONDS = 8 * 86400

const text = `local record,n=table.remove(KEYS),table.remove(ARGV)
local from=#ARGV-2*n
local minute,names,changes=ARGV[from],{},{}
for i=1,n do names[i]=ARGV[from+2*i-1]end
local known=redis.call('HMGET',record,'#',unpack(names))
local size=(known[1]or 0)+0
for i,field in ipairs(names)do
local text,list=known[i+1],{}
if text or size<500 then
for name,count,error,since,minutes in string.gmatch(text or'','(%S+) (%d+) (%d+) (%d+) (%S+)')do
list[#list+1]={name,count+0,error,since,minutes}
end
for name,count,error in string.gmatch(ARGV[from+2*i],'(%S+) (%d+) (%d+)')do
local own,least
for j=1,#list do
local each=list[j]
if each[1]==name then own=each end
if not least or each[2]<least[2]then least=each end
end
if not own then
own={name,0,0,minute,''}
if #list<20 then
list[#list+1]=own
else
own[2],own[3]=least[2],least[2]
for j=1,5 do least[j]=own[j]end
own=least
end
end
own[2],own[3]=own[2]+count,own[3]+error
count=count-error
local last,sum=string.match(own[5],'(%d+):(%d+)$')
if last and last-minute>=0 then
own[5]=string.gsub(own[5],'%d+$',string.format('%.0f',sum+count))
else
if last then
if minute-last>5 then own[4]=minute end
own[5]=string.gsub(own[5],'^[^,]+,(.*,.*,.*,.*,.*)$','%1')..','
end
own[5]=own[5]..minute..':'..count
end
end
size=text and size or size+1
for j,each in ipairs(list)do list[j]=string.format('%s %.0f %.0f %s %s',unpack(each))end
changes[#changes+1]=field
changes[#changes+1]=table.concat(list,' ')
end
end
writes[#writes+1]={record,not known[1]and ${KEEP_SECONDS},size,changes}
for i=#ARGV,from,-1 do ARGV[i]=nil end
`

/** A test compares the digests with the text. */
export const addCountsAndCallersScript = restoreScript({
  text: WRITES + text + addCountsBody,
  sha1: {
    keyLocking: '23cf70632e828284bb34cfdd906491c2c64ed890',
    plain: '6aa9016befe8e167e23a8af418e614cb4ae0091d',
  },
})

/** The call with callers. @param call of the script of add-counts.ts */
export function withCallers(call: ScriptCall, sketches: Sketches, at: Date): ScriptCall {
  const callers = [...sketches].flatMap(([counted, sketch]) => [
    counted,
    [...sketch].map(([name, { count, error }]) => `${name} ${count} ${error}`).join(' '),
  ])
  return {
    script: addCountsAndCallersScript(),
    keys: [...call.keys, callersKey(at)],
    args: [...call.args, String(at.getUTCMinutes()), ...callers, String(sketches.size)],
  }
}
