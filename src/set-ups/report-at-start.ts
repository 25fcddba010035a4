/**
 * Logs at the start of a process or an isolate what each request would be refused with: variables that are missing or not valid. It does
 * not throw, because the variables of a request may differ from those of the process.
 */
export function reportAtStart(check: () => unknown): void {
  try {
    check()
  } catch (error) {
    // biome-ignore lint/suspicious/noConsole: at the start, for people.
    console.error((error as Error).message)
  }
}
