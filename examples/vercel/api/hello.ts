/** A guard around a function of Vercel. */
import { callerOf, guard } from 'sluicegate/guard'
import config from '../sluice.config.ts'

export const GET = guard(config)((request: Request): Response => {
  const caller = callerOf(request)
  return Response.json({ hello: caller?.consumer ?? 'stranger', left: caller?.limits[0]?.remaining })
})
