/** Everything that is checked on both gateways. */
import { afterAll, beforeAll, describe } from 'vitest'
import { hasRedisServer } from '../support/servers.ts'
import { type GatewayName, type HostileBed, startHostileBed } from './gateways.ts'
import { describeIdentity } from './identity-cases.ts'
import { describeOriginKinds } from './origin-cases.ts'
import { describeRequestForms } from './request-cases.ts'
import { describeRetries } from './retry-cases.ts'

export function describeHostile(gateway: GatewayName): void {
  describe.skipIf(!hasRedisServer)(gateway, () => {
    let bed: HostileBed
    const bedOf = () => bed
    beforeAll(async () => {
      bed = await startHostileBed(gateway)
    })
    afterAll(async () => {
      await bed?.close()
    })

    describeRequestForms(bedOf)
    describeIdentity(bedOf)
    describeRetries(bedOf)
    describeOriginKinds(bedOf, ({ platform }) => (gateway === 'workerd' ? platform : undefined))
  })
}
