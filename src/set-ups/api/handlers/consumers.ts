/** Consumers: their plans and blocks. */
import {
  blockConsumer,
  changePlan,
  readConsumer,
  readConsumers,
  unblockConsumer,
} from '../../../ops/consumers.ts'
import {
  consumerChangeDocument,
  consumerDocument,
  planChangeDocument,
  removedConsumerDocument,
} from '../../../ops/documents/consumers.ts'
import { readNamePage } from '../../../ops/key-pages.ts'
import { removeConsumer } from '../../../ops/remove-consumer.ts'
import { pageDocument, pageOf } from '../cursor.ts'
import { consumerOf, valuesOf } from '../parse-input.ts'
import { adminRoute } from '../route.ts'
import { blockBody, changeConsumerBody, listQuery } from '../schemas.ts'

/** A token that can change a setting of a consumer can read all of them. */
const READING = ['consumers:block', 'consumers:write', 'overrides:write'] as const
const PATH = 'consumers/{consumer}'

/** The most keys that are shown of a consumer. GET keys lists all. */
const MAX_KEYS = 100

export const consumersRoutes = [
  adminRoute({
    method: 'GET',
    path: 'consumers',
    scopes: READING,
    query: listQuery,
    async run({ store, query }, services) {
      const { items: names, ...next } = await readNamePage(store, pageOf(query, 'consumers'))
      const items = await readConsumers(store, names, MAX_KEYS)
      const page = { items, ...next }
      return pageDocument('consumers', page, each => consumerDocument(each, services))
    },
  }),
  adminRoute({
    method: 'GET',
    path: PATH,
    scopes: READING,
    run: async (call, services) =>
      consumerDocument(await readConsumer(call.store, await consumerOf(call), MAX_KEYS), services),
  }),
  adminRoute({
    method: 'PATCH',
    path: PATH,
    scopes: ['consumers:write'],
    body: changeConsumerBody,
    async run(call, services) {
      const { plan } = await valuesOf(call.body, services)
      const consumer = await consumerOf(call)
      const { plans } = services.config
      return planChangeDocument(consumer, await changePlan(call.store, consumer, plan ?? undefined, plans))
    },
  }),
  adminRoute({
    method: 'PUT',
    path: `${PATH}/block`,
    scopes: ['consumers:block'],
    body: blockBody,
    async run(call, services) {
      const { reason: _, ...values } = await valuesOf(call.body, services)
      const consumer = await consumerOf(call)
      const { actor, reason } = call.change
      const change = await blockConsumer(call.store, consumer, {
        ...values,
        by: actor.name,
        reason,
      })
      return consumerChangeDocument(consumer, change)
    },
  }),
  adminRoute({
    method: 'DELETE',
    path: `${PATH}/block`,
    scopes: ['consumers:block'],
    async run(call) {
      const consumer = await consumerOf(call)
      return consumerChangeDocument(consumer, await unblockConsumer(call.store, consumer))
    },
  }),
  adminRoute({
    method: 'DELETE',
    path: PATH,
    scopes: ['consumers:write'],
    async run(call, { config }) {
      const consumer = await consumerOf(call)
      return removedConsumerDocument(consumer, await removeConsumer(call.store, consumer, config.rules))
    },
  }),
]
