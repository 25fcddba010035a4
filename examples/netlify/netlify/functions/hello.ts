/** A guard around a function of Netlify. */
import { callerOf, guard } from 'sluicegate/guard'
import config from '../../sluice.config.ts'

export default guard(config)((request: Request, _context: unknown): Response => {
  const caller = callerOf(request)
  return Response.json({ hello: caller?.consumer ?? 'stranger', left: caller?.limits[0]?.remaining })
})
