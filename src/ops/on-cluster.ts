/** What takes more than one script on a cluster. */
import type { OnCluster } from './admin-store-shape.ts'
import { listStream, readStreams } from './audit-on-cluster.ts'
import { rotateOnCluster } from './tokens-on-cluster.ts'

export const ON_CLUSTER: OnCluster = { listStream, readAudit: readStreams, rotateToken: rotateOnCluster }
