/** The Worker that has the limits. */
import { limitsEntrypoint } from '../../../src/set-ups/rpc/entrypoint.ts'
import config from './all-limits.config.ts'

export class Limits extends limitsEntrypoint(config) {}

export default {
  fetch: () => new Response('This Worker has an entrypoint, and serves nothing.', { status: 404 }),
}
