/** Administration of consumers: plans, blocks, overrides. A consumer need not exist before something is set for it. */
import { blockConsumer, changePlan, listConsumers, showConsumer, unblockConsumer } from '../consumers.ts'
import { type AdminContext, signedBy } from '../context.ts'
import {
  type ConsumerChangeDocument,
  type ConsumerDocument,
  consumerChangeDocument,
  consumerDocument,
  type OverrideChangeDocument,
  overrideChangeDocument,
  type PlanChangeDocument,
  planChangeDocument,
  removedConsumerDocument,
  type SettingsDocument,
  settingsDocument,
} from '../documents/consumers.ts'
import {
  CHANGE_FIELDS,
  type ChangeInput,
  checkFields,
  checkRuleMode,
  parseEnd,
  parseSignature,
  type TimeInput,
} from '../inputs.ts'
import { parseConsumerName, parsePlan, parseShortText } from '../names.ts'
import {
  compileOverride,
  findOverridable,
  type OverrideInput,
  removeOverride,
  setOverride,
} from '../overrides.ts'
import { removeConsumer } from '../remove-consumer.ts'

/** Other numbers, or another mode, of a rule. Absent numbers are those of the rule. */
export interface OverrideSettings extends Omit<OverrideInput, 'rule' | 'until'> {
  until?: TimeInput
  /** The author. Default: that of `createAdmin`. */
  by?: string
  /** Also removes overrides of rules that the config does not have. */
  removeStale?: boolean
}

export type ConsumerAdmin = ReturnType<typeof administerConsumers>

export function administerConsumers(context: AdminContext) {
  const { store, config, by } = context
  return {
    async list(): Promise<ConsumerDocument[]> {
      return (await listConsumers(store)).map(consumer => consumerDocument(consumer, config))
    },

    async show(consumer: string): Promise<ConsumerDocument> {
      return consumerDocument(await showConsumer(store, await parseConsumerName(consumer)), config)
    },

    /** @param plan null: the first plan of the config applies. A plan of a key takes precedence */
    async setPlan(consumer: string, plan: string | null): Promise<PlanChangeDocument> {
      const name = await parseConsumerName(consumer)
      const chosen = plan === null ? undefined : parsePlan(plan, config.plans)
      return planChangeDocument(name, await changePlan(store, name, chosen, config.plans))
    },

    /** Refuses all requests of a consumer with a 403. */
    async block(consumer: string, change: ChangeInput = {}): Promise<ConsumerChangeDocument> {
      checkFields('consumers.block', change, CHANGE_FIELDS)
      const signature = parseSignature(change, by)
      const name = await parseConsumerName(consumer)
      return consumerChangeDocument(name, await blockConsumer(signedBy(context, signature), name, signature))
    },

    async unblock(consumer: string): Promise<ConsumerChangeDocument> {
      const name = await parseConsumerName(consumer)
      return consumerChangeDocument(name, await unblockConsumer(store, name))
    },

    /** Removes a consumer with its keys, its settings and its counters. */
    async remove(consumer: string) {
      const name = await parseConsumerName(consumer)
      return removedConsumerDocument(name, await removeConsumer(store, name, config.rules))
    },

    /** Overrides a rule that counts by consumer. It replaces an earlier override of the rule. */
    async setOverride(
      consumer: string,
      rule: string,
      { until, by: own = by, removeStale, ...settings }: OverrideSettings,
    ): Promise<OverrideChangeDocument> {
      checkRuleMode(settings.mode)
      const end = until === undefined ? undefined : parseEnd(until)
      const name = await parseConsumerName(consumer)
      const numbers = compileOverride(config.input, { rule, ...settings, ...(end && { until: end }) })
      const override = { ...numbers, at: new Date(), by: parseShortText(own, 'name') }
      const change = await setOverride(signedBy(context, override), name, override, {
        config: config.input,
        removeStale,
      })
      return overrideChangeDocument(name, override, change, config)
    },

    async removeOverride(consumer: string, rule: string): Promise<SettingsDocument> {
      const name = await parseConsumerName(consumer)
      const { record, isChanged } = await removeOverride(store, name, rule)
      // Without an override, the name of the rule may be misspelled.
      if (!isChanged) findOverridable(config.input, rule)
      return settingsDocument(name, record, config)
    },
  }
}
