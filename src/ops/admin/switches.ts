/** Administration of live switches. */
import { didYouMean } from '../../config/check/did-you-mean.ts'
import type { RuleSwitch } from '../../switches/switches.ts'
import { listExceptionalConsumers } from '../consumers.ts'
import { type AdminContext, signedBy } from '../context.ts'
import {
  type ExceptionsDocument,
  exceptionsDocument,
  type SwitchesDocument,
  switchesDocument,
} from '../documents/switches.ts'
import {
  CHANGE_FIELDS,
  type ChangeInput,
  checkFields,
  checkRuleMode,
  checkShare,
  parseSignature,
  switchOf,
} from '../inputs.ts'
import { listOverridesOfLimits } from '../overrides.ts'
import {
  checkRuleChange,
  findSwitchable,
  killLimits,
  readSwitches,
  resetRule,
  restoreLimits,
  switchRule,
} from '../switches.ts'

export type RuleChangeInput = ChangeInput & Pick<RuleSwitch, 'mode' | 'share'>

export type SwitchAdmin = ReturnType<typeof administerSwitches>

export function administerSwitches(context: AdminContext) {
  const { store, config, by } = context
  return {
    /** The switches, the blocked consumers and the overrides. */
    async show(): Promise<ExceptionsDocument> {
      const [switches, consumers] = [await readSwitches(store), await listExceptionalConsumers(store)]
      return exceptionsDocument(switches, consumers, await listOverridesOfLimits(store, config), config)
    },

    /** Turns the kill switch on: no rule limits a request until it ends or is turned off. */
    async kill(change: ChangeInput = {}): Promise<SwitchesDocument> {
      checkFields('switches.kill', change, CHANGE_FIELDS)
      const signed = switchOf(parseSignature(change, by))
      return switchesDocument(await killLimits(signedBy(context, signed), signed), config)
    },

    /** Turns the kill switch off. */
    async restore(): Promise<SwitchesDocument> {
      return switchesDocument((await restoreLimits(store)).switches, config)
    },

    /** Changes the mode of a rule, or the share of callers that it is enforced for. @param rule of a limit by name: `<limit>/<rule>` */
    async setRule(rule: string, { mode, share, ...change }: RuleChangeInput): Promise<SwitchesDocument> {
      checkFields('switches.setRule', change, ['mode', 'share', ...CHANGE_FIELDS])
      checkRuleMode(mode)
      checkShare(share)
      checkRuleChange({ mode, share })
      const signed = switchOf(parseSignature(change, by))
      findSwitchable(config, rule, didYouMean)
      const set = { ...signed, ...(mode && { mode }), ...(share !== undefined && { share }) }
      return switchesDocument(await switchRule(signedBy(context, signed), rule, set), config)
    },

    /** Makes a rule follow the config again. */
    async resetRule(rule: string): Promise<SwitchesDocument> {
      const { switches, isChanged } = await resetRule(store, rule)
      // Without a switch, the name of the rule may be misspelled.
      if (!isChanged) findSwitchable(config, rule, didYouMean)
      return switchesDocument(switches, config)
    },
  }
}
