import { createLimiter } from 'sluicegate'
import limits from './sluice.config.js'

export const limiter = createLimiter(limits)
