/** Middleware of a Hono app on Workers. */
import { Hono } from 'hono'
import { sluice } from 'sluicegate/hono'
import config from '../sluice.config.ts'

const app = new Hono()

app.use('/api/*', sluice(config))
app.get('/api/hello', c => {
  const caller = c.get('sluice')
  return c.json({ hello: caller?.consumer ?? 'stranger', left: c.get('rateLimit')?.remaining })
})
app.get('/', c => c.text('Not limited.'))

export default app
