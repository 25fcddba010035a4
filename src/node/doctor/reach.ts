/** Whether a URL can be reached: its name, and its TLS. For stores and gateways. */
import { lookup } from 'node:dns/promises'
import { isIP } from 'node:net'
import { connect } from 'node:tls'
import { isOnThisMachine } from '../../ops/store-failure.ts'
import { type Check, type Finding, fault, findings, ok } from './checks.ts'

const TIMEOUT_MS = 5000
const DAY_MS = 86_400_000
/** Certificates are usually renewed 30 days before they end. */
const MIN_DAYS = 14

export const reachChecks = (what: 'store' | 'gateway', url: string): Check[] => [
  { name: `${what}-address`, isEssential: true, run: () => checkName(url) },
  { name: `${what}-tls`, isEssential: true, run: () => checkTls(url) },
]

const hostOf = (url: string) => new URL(url).hostname.replace(/^\[|\]$/g, '')

async function checkName(url: string): Promise<Finding> {
  const host = hostOf(url)
  if (host === '' || isIP(host)) return ok`The URL has an address, so there is no name to resolve.`
  const startedAt = performance.now()
  try {
    const { length } = await lookup(host, { all: true })
    const ms = Math.round(performance.now() - startedAt)
    return findings({ dns_ms: ms }).ok`The name resolves in ${ms} ms (addresses: ${length}).`
  } catch (error) {
    return fault`The name of the host does not resolve (${(error as NodeJS.ErrnoException).code!}). → Copy the URL again. A deleted database has no name any more.`
  }
}

async function checkTls(url: string): Promise<Finding> {
  const { protocol, port } = new URL(url)
  if (!/^(https|rediss):$/.test(protocol))
    return isOnThisMachine(url)
      ? ok`No TLS, which is not needed on this machine.`
      : fault`There is no TLS: tokens and keys travel in clear text. → Use an https URL. For the bridge, put a proxy with TLS in front of it.`
  const startedAt = performance.now()
  const host = hostOf(url)
  const socket = connect({
    ...{ host, port: Number(port || (protocol === 'https:' ? 443 : 6379)), timeout: TIMEOUT_MS },
    ...(!isIP(host) && { servername: host }),
  })
  const failure = await new Promise<NodeJS.ErrnoException | undefined>(resolve => {
    socket.once('secureConnect', () => resolve(undefined)).once('error', resolve)
    socket.once('timeout', () => resolve(Object.assign(new Error(), { code: 'ETIMEDOUT' })))
  })
  const ms = Math.round(performance.now() - startedAt)
  const version = socket.getProtocol()
  const endsAt = Date.parse(failure ? '' : socket.getPeerCertificate().valid_to)
  socket.destroy()
  const { code = 'no TLS' } = failure ?? {}
  if (failure && /^E[A-Z]+$/.test(code))
    return fault`No connection can be made (${code}). → Check the host and the port of the URL, and the firewall.`
  if (failure)
    return fault`The certificate is not valid, or there is no TLS (${code}). → Use a certificate of an authority that browsers trust: Workers accept no other.`
  const days = Math.floor((endsAt - Date.now()) / DAY_MS)
  const found = findings({ tls_ms: ms, certificate_days: days })
  return days < MIN_DAYS
    ? found.limit`The certificate ends in ${days} days. → Renew it: when it has ended, no request gets through.`
    : found.ok`${version!}, connected in ${ms} ms. The certificate is valid for ${days} more days.`
}
