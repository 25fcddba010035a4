/** What the API needs on a cluster. Other Workers do not carry it. */
import type { OnCluster } from '../../ops/admin-store-shape.ts'
import { ON_CLUSTER } from '../../ops/on-cluster.ts'
import { withoutCommandLine } from './without-command-line.ts'

export interface ApiOnCluster extends OnCluster {
  /** How to find out what became of the first request with an Idempotency-Key (idempotency.ts). */
  firstRequest: string
}

export const API_ON_CLUSTER: ApiOnCluster = {
  ...ON_CLUSTER,
  readAudit: (...range) => withoutCommandLine(() => ON_CLUSTER.readAudit(...range)),
  firstRequest:
    'If a GET does not find it a minute later, the first request has failed: use another Idempotency-Key.',
}
