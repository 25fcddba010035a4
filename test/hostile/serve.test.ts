/** Misbehaving origins and clients, and `sluicegate serve`. */
import { describeHostile } from './cases.ts'

describeHostile('serve')
