/** A page with a limit of its own, by name. */
import { limiter } from '../limiter.js'

// Without this line, `next build` decides once, and every visitor gets that page.
export const dynamic = 'force-dynamic'

export default async function Page() {
  const { allowed, rules } = await limiter.limit('letters', { user: 'ada' })
  return <p>{allowed ? `Letters left today: ${rules[0].remaining}` : 'No letters left today'}</p>
}
