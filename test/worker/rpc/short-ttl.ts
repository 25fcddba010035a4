/** A Worker whose units are free a second after it has died. */
import { limitsEntrypoint } from '../../../src/set-ups/rpc/entrypoint.ts'
import config from './short-ttl.config.ts'

export class Limits extends limitsEntrypoint(config) {}

export default { fetch: () => new Response(null, { status: 404 }) }
