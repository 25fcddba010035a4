/** The values that worker-setup.ts provides to the tests inside workerd, and test/package/pack.ts to those of the package. */
import 'vitest'

declare module 'vitest' {
  interface ProvidedContext {
    restUrl: string
    restToken: string
    originUrl: string
    apiKey: string
    /** The key of a consumer that only one test uses. */
    burstKey: string
    /** The packed package. */
    tarball: string
  }
}
