/** Cloudflare Queues delays a message by at most 12 hours. */
const LONGEST_DELAY_SECONDS = 12 * 60 * 60

/**
 * When the queue delivers a refused message again (s). If all messages of a backlog came back at `retryAfterMs`, most of them would be
 * refused again, and Cloudflare Queues gives up on a message after 100 retries. So a message that was refused before comes back at a
 * random time after that, from a range that grows with each refusal.
 *
 * @param attempts how often the message was delivered
 */
export function delaySeconds(retryAfterMs: number, attempts: number, random = Math.random): number {
  const spread = random() * (attempts - 1) ** 2
  return Math.min(Math.ceil(retryAfterMs / 1000 + spread), LONGEST_DELAY_SECONDS)
}
