/** The gateway as a Worker, from a config and without a build step. `npx sluicegate init` makes one that is built, and half as large. */
import { gateway } from 'sluicegate/worker'
import config from '../sluice.config.ts'

export default gateway(config)
