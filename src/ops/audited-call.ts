/** Puts the entry of the audit trail in front of scripts that decide. */
import { FIRST_LINES } from '../script/create-script.ts'
import { AUDIT } from '../script/lua.generated.ts'
import { sha1 } from '../sha1.ts'
import type { Script, ScriptCall } from '../store/store.ts'
import type { AdminStore } from './admin-store.ts'
import type { Entry } from './change.ts'

/** Runs in front of a script that has no call of `audit`: an entry, if any of its keys exists. */
const AUDIT_IF_ANY = `if redis.call('EXISTS', unpack(KEYS)) > 0 then audit() end\n`

/** As AUDIT_IF_ANY, without the condition. */
export const AUDIT_ALWAYS = 'audit()\n'

/** The call with an entry, which is written if any of its keys exists. Its keys have no environment, as those of the store that decides. */
export async function auditedCall(
  { audit }: AdminStore,
  call: ScriptCall,
  entry: Entry,
): Promise<ScriptCall> {
  if (!audit.isOn) return call
  const { stream, values } = await audit.entryFor(call.keys[0]!, entry)
  return {
    ...call,
    script: auditedScript(call.script),
    keys: [...call.keys, stream],
    args: [...call.args, ...values],
  }
}

function auditedScript(script: Script): Script {
  const build = (kind: keyof Script) => {
    const first = FIRST_LINES[kind]
    const source = first + AUDIT + AUDIT_IF_ANY + script[kind].source.slice(first.length)
    return { source, sha1: sha1(source) }
  }
  return {
    get keyLocking() {
      return build('keyLocking')
    },
    get plain() {
      return build('plain')
    },
  }
}
