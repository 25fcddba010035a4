/** Puts the entry of the audit trail in front of scripts that decide. */
import { AUDIT } from '../script/lua.generated.ts'
import { scriptBehind } from '../script/script-behind.ts'
import type { ScriptCall } from '../store/store.ts'
import type { AdminStore } from './admin-store-shape.ts'
import { entryFor } from './audited.ts'
import type { Entry } from './change.ts'

/** Runs in front of a script that has no call of `audit`: an entry, if any of its keys exists. */
const AUDIT_IF_ANY = `if redis.call('EXISTS', unpack(KEYS)) > 0 then audit() end\n`

const auditedScript = /* @__PURE__ */ scriptBehind(AUDIT + AUDIT_IF_ANY)

/** As AUDIT_IF_ANY, without the condition. */
export const AUDIT_ALWAYS = 'audit()\n'

/** The call with an entry, which is written if any of its keys exists. Its keys have no environment, as those of the store that decides. */
export async function auditedCall(store: AdminStore, call: ScriptCall, entry: Entry): Promise<ScriptCall> {
  if (!store.author) return call
  const { stream, values } = await entryFor(store, call.keys[0]!, entry)
  return {
    ...call,
    script: await auditedScript(call.script),
    keys: [...call.keys, stream],
    args: [...call.args, ...values],
  }
}
