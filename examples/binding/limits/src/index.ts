/** The Worker that has the limits. Others call it through a service binding; it needs no address of its own. */
import { limitsEntrypoint } from 'sluicegate/rpc'
import config from '../sluice.config.ts'

export class Limits extends limitsEntrypoint(config) {}

export default { fetch: () => new Response('Nothing is served here.', { status: 404 }) }
