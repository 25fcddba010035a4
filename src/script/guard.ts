/**
 * A guard in front of a script: it checks a service token in the run of the script, before anything is counted. So a decision takes
 * one trip, and a refused token spends nothing. A guarded script is the guard and then the script, put together at run time; the scripts
 * themselves stay as they are.
 *
 *     KEYS     those of the script, then the record of the token
 *     ARGV     those of the script, then the scopes, with commas; the token needs any one of them
 *
 *     reply    that of the script, or text: why the token was refused
 *
 * Commands: one GET.
 */
import type { ScriptCall } from '../store/store.ts'
import { scriptBehind } from './script-behind.ts'

/** What a call has to prove before it runs. */
export interface GuardArguments {
  /** Key of the record of the token. */
  key: string
  /** Any one of them. At least one. */
  scopes: readonly string[]
}

export type GuardReply = 'unknown' | 'scope'

/**
 * In short form, because a Worker does not carry shortenScript. It adds no line, so that line numbers stay, and no local to those of the
 * script, which has at most 200. Names are escaped in records, so none can contain ` scopes=`.
 */
const GUARD = `do local r,f=redis.call('GET',KEYS[#KEYS])
local s=r and string.match(r,' scopes=(%S+)')
if not s then return'unknown'end
s=','..s..','
for w in string.gmatch(ARGV[#ARGV],'[^,]+')do f=f or string.find(s,','..w..',',1,true)end
if not f then return'scope'end
KEYS[#KEYS],ARGV[#ARGV]=nil,nil end `.replaceAll('\n', ' ')

/** The script with the guard. */
export const guardedScript = /* @__PURE__ */ scriptBehind(GUARD)

/** The call with the guard in front of it. */
export const guardCall = async (call: ScriptCall, { key, scopes }: GuardArguments): Promise<ScriptCall> => ({
  ...call,
  script: await guardedScript(call.script),
  keys: [...call.keys, key],
  args: [...call.args, scopes.join(',')],
})

/** Whether the guard has refused. Scripts reply with lists. */
export const isGuardReply = (reply: unknown): reply is GuardReply => reply === 'unknown' || reply === 'scope'
