/** Limits of a Koa app. */
import Koa from 'koa'
import { expressGuard } from 'sluicegate/express'
import config from './sluice.config.ts'

const app = new Koa()
const limits = expressGuard(config)

app.use(
  ({ req, res }, next) =>
    new Promise<void>((resolve, reject) => {
      // A refused request is answered there, and `next` is not called.
      res.once('close', resolve)
      limits(req, res, error => (error ? reject(error) : resolve(next())))
    }),
)

app.use(ctx => {
  const { sluice } = ctx.req
  ctx.body = { hello: sluice?.consumer ?? 'stranger', left: sluice?.limits[0]?.remaining }
})

const port = Number(process.env.PORT ?? 3000)
app.listen(port, '127.0.0.1', () => console.log(`http://127.0.0.1:${port}`))
