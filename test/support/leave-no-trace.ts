/**
 * Runs in each test file. Vitest undoes stubs before the next test, and files share their globals: without this, a stub of a file's last
 * test would still be there in the `beforeAll` of the next file.
 */
import { afterEach, vi } from 'vitest'

afterEach(() => {
  vi.unstubAllGlobals()
  vi.unstubAllEnvs()
  vi.restoreAllMocks()
  vi.useRealTimers()
})
