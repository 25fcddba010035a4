/** The commands `switch …` by the HTTP API. */
import { AdminError } from '../../ops/admin-error.ts'
import type { SwitchesDocument } from '../../ops/documents/switches.ts'
import { mustConfirm } from './administration.ts'
import { endOf, notInApi, type Run, reasonOf, signatureIn } from './api-flags.ts'
import { note, print } from './output.ts'
import { mustHaveNoEnd } from './switch.ts'
import { killSwitchText, noteOfShare, ruleSwitchText, switchTable } from './switch-output.ts'

/** By the words of the command. */
export const SWITCH_COMMANDS: Readonly<Record<string, Run>> = {
  'switch show': async (api, flags) => {
    if (flags.history) throw notInApi('switch --history')
    const document = await api.call<SwitchesDocument>('listSwitches')
    const others = 'To see blocked consumers and overrides: npx sluicegate consumers list'
    print(flags, document, () => [killSwitchText(document), switchTable(document), others].join('\n\n'))
  },

  'switch kill': async (api, flags, state) => {
    if (state === 'off') {
      mustHaveNoEnd(signatureIn(flags), 'off')
      const document = await api.call<SwitchesDocument>('removeKillSwitch', reasonOf(flags))
      return print(flags, document, () => killSwitchText(document))
    }
    await mustConfirm('Turn the kill switch on? While it is on, no rule limits any request.', flags)
    const call = { body: endOf(flags), ...reasonOf(flags) }
    const document = await api.call<SwitchesDocument>('setKillSwitch', call)
    print(flags, document, () => killSwitchText(document))
  },

  'switch rule': async (api, flags, rule, state) => {
    const { share } = flags
    const params = { rule: rule! }
    if (state === 'reset') {
      mustHaveNoEnd(signatureIn(flags), state)
      if (share !== undefined)
        throw new AdminError('usage', 'reset cannot be combined with --share. Use one of them.')
      const document = await api.call<SwitchesDocument>('removeSwitch', { params, ...reasonOf(flags) })
      return print(flags, document, () => ruleSwitchText(document, rule!))
    }
    const body = { mode: state, share, ...endOf(flags) }
    const document = await api.call<SwitchesDocument>('setSwitch', { params, body, ...reasonOf(flags) })
    const ofShare = share === undefined ? undefined : noteOfShare(document, rule!)
    if (ofShare) note(ofShare)
    print(flags, document, () => ruleSwitchText(document, rule!))
  },
}
