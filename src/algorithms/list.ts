/** The descriptors of all algorithms, by the names that the config and the scripts use. */
import * as concurrency from './concurrency.descriptor.ts'
import * as fixedWindow from './fixed-window.descriptor.ts'
import * as gcra from './gcra.descriptor.ts'
import * as leakyBucket from './leaky-bucket.descriptor.ts'
import * as slidingLog from './sliding-log.descriptor.ts'
import * as slidingWindow from './sliding-window.descriptor.ts'
import * as tokenBucket from './token-bucket.descriptor.ts'

/** Not `export * as 'fixed-window'`: webpack 5.91, TypeScript 5.5 and Next.js 14 cannot parse names that are strings. */
export const list = {
  concurrency,
  'fixed-window': fixedWindow,
  gcra,
  'leaky-bucket': leakyBucket,
  'sliding-log': slidingLog,
  'sliding-window': slidingWindow,
  'token-bucket': tokenBucket,
}
