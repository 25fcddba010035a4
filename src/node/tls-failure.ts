/** What is wrong with the TLS of a server, and what to do: for the commands that connect to Redis, and for `npx sluicegate doctor`. */

const RENEW = 'Renew it: until then, no request gets through.'
const BROWSERS =
  'Use a certificate of an authority that browsers trust: Workers and most clients accept no other.'
const EXTRA =
  'Set NODE_EXTRA_CA_CERTS to the file of the authority, for each program that connects to this Redis.'

/**
 * @param text has the code of an error of Node
 * @param isForWorkers whether Workers connect to the server as well
 * @returns undefined if the error is not about TLS
 */
export function describeTlsFailure(
  text: string,
  isForWorkers: boolean,
): readonly [what: string, nextStep: string] | undefined {
  const failures: Readonly<Record<string, readonly [what: string, nextStep: string]>> = {
    ALTNAME: [
      'The certificate is for another name than that in the URL.',
      'Use a name that the certificate has, or get a certificate for this one.',
    ],
    HAS_EXPIRED: ['The certificate has expired.', RENEW],
    NOT_YET_VALID: [
      'The certificate is not valid yet.',
      'Check the clock of this machine (timedatectl), and the certificate.',
    ],
    'ALERT_(CERTIFICATE_REQUIRED|BAD_CERTIFICATE|HANDSHAKE)': [
      'The server wants a certificate of its clients, which Sluice does not send.',
      'Set tls-auth-clients no in redis.conf: the password still protects the server.',
    ],
    'SELF_SIGNED|UNABLE_TO|CERT_': [
      'The authority of the certificate is not known here.',
      isForWorkers ? BROWSERS : EXTRA,
    ],
    'SSL_|EPROTO': [
      'The server does not use TLS at this port.',
      'Check the port. Without TLS, the URL begins with http:// or redis://.',
    ],
  }
  return Object.entries(failures).find(([pattern]) => new RegExp(pattern).test(text))?.[1]
}
