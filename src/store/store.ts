/** What the limiter needs of a store: run the script, and say whether it is there. */
export interface Store {
  /**
   * Runs the decision script once.
   * @returns the script's reply, not yet checked
   * @throws GatewayError ERR_STORE_TIMEOUT, _UNREACHABLE, _REFUSED or _REPLY_INVALID; their messages hold no keys
   */
  run(keys: readonly string[], args: readonly string[]): Promise<unknown>
  /** Resolves when the store answers; throws as `run` does. */
  ping(): Promise<void>
}
