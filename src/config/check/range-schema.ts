/** The schema of a list of IP addresses and ranges. */
import * as v from 'valibot'
import { addressText, networkOf, parseRange } from '../address-ranges.ts'

const RANGE = "Write an address or a range, as in '192.0.2.7', '10.0.0.0/8' or '2001:db8::/32'."

const range = v.pipe(
  v.string(`is not a range of addresses. ${RANGE}`),
  v.check(
    input => flawOf(input) === undefined,
    ({ input }) => flawOf(input)!,
  ),
)

/** `['10.0.0.0/8', '192.0.2.7', '2001:db8::/32']` */
export const addressRanges = v.array(range, "is not a list. Write it like ['10.0.0.0/8', '2001:db8::/32'].")

/** The message for an invalid range, as the second half of a sentence. @returns undefined for a valid one */
function flawOf(text: string): string | undefined {
  const parsed = parseRange(text)
  if (!parsed) return `is not a range of addresses. ${RANGE}`
  const { network: address, prefix } = parsed
  const own = addressText(address)
  const network = addressText(networkOf(address, prefix))
  if (network === own) return undefined
  return `is an address inside a range. Write '${network}/${prefix}' for the range, or '${own}' for this address alone.`
}
