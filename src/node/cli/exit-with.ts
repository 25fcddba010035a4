/** Ends the command line with an exit code that is not that of an error. What there is to say was printed. */
export class ExitWith extends Error {
  readonly code: number

  constructor(code: number) {
    super(`The exit code is ${code}.`)
    this.code = code
  }
}
