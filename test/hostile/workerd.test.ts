/** Misbehaving origins and clients, and the Worker in workerd. */
import { describeHostile } from './cases.ts'

describeHostile('workerd')
