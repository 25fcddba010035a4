/** Middleware of an Express app. */
import express from 'express'
import { expressGuard } from 'sluicegate/express'
import config from './sluice.config.ts'

const app = express()

app.use(expressGuard(config))
app.get('/', (req, res) => {
  res.json({ hello: req.sluice?.consumer ?? 'stranger', left: req.sluice?.limits[0]?.remaining })
})

const port = Number(process.env.PORT ?? 3000)
app.listen(port, '127.0.0.1', () => console.log(`http://127.0.0.1:${port}`))
