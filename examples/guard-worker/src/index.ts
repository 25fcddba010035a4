/** A guard around the handler of a Worker. */
import { callerOf, guard } from 'sluicegate/guard'
import config from '../sluice.config.ts'

function handle(request: Request): Response {
  const caller = callerOf(request)
  return Response.json({ hello: caller?.consumer ?? 'stranger', left: caller?.limits[0]?.remaining })
}

export default { fetch: guard(config)(handle) }
