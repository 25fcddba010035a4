#!/usr/bin/perl
# A client in Perl that has its operations from the OpenAPI document alone (Debian: libopenapi-client-perl). It checks each reply against
# the document, and prints the replies. Usage: support.pl DOCUMENT; the environment has GATEWAY, TOKEN and SUPPORT_TOKEN.
use strict;
use warnings;
use Mojo::JSON qw(encode_json false true);
use OpenAPI::Client;

my $document = "file://$ARGV[0]";

sub client {
  my ($token) = @_;
  my $client = OpenAPI::Client->new($document, base_url => "$ENV{GATEWAY}/_sluice/v1");
  # The class of the document, with no credentials of its own.
  $client->ua->on(start => sub { $_[1]->req->headers->authorization("Bearer $token") });
  return $client;
}

# What is wrong with a reply, according to the document.
sub mistakes_in {
  my ($client, $operation, $tx, $value) = @_;
  my ($route) = grep { ($_->{operation_id} // '') eq $operation } @{$client->validator->routes};
  my $type = $tx->res->headers->content_type =~ s/;.*//r;
  my $body = sub { return {exists => 1, value => $value, content_type => $type} };
  my $header = sub {
    my $value = $tx->res->headers->header($_[0]);
    return {exists => defined $value, value => $value};
  };
  return map {"$_"} $client->validator->validate_response([@$route{qw(method path)}, $tx->res->code],
    {body => $body, header => $header});
}

# Sends a request. `is_sent` is false if the client has refused its input.
sub call {
  my ($client, $operation, @request) = @_;
  my $tx = $client->call($operation, @request);
  die $tx->error->{message} if $tx->error && !$tx->error->{code};
  my $reply = {status => $tx->res->code + 0, body => $tx->res->json, is_sent => defined $tx->connection ? true : false};
  if (defined $tx->connection) {
    $reply->{mistakes} = [mistakes_in($client, $operation, $tx, $reply->{body})];
    # Shows that the client checks replies at all.
    $reply->{mistakes_in_empty} = scalar mistakes_in($client, $operation, $tx, {});
  }
  return $reply;
}

my $backend = client($ENV{TOKEN});
my $support = client($ENV{SUPPORT_TOKEN});

print encode_json({
  created => call($backend, createKey => {'Idempotency-Key' => 'signup-18'}, json => {consumer => 'globex'}),
  listed => call($backend, 'listKeys', {consumer => 'globex'}),
  blocked => call($support, blockConsumer => {consumer => 'globex'}, json => {reason => 'unpaid', until => '2h'}),
  shown => call($support, showConsumer => {consumer => 'globex'}),
  unblocked => call($support, unblockConsumer => {consumer => 'globex'}),
  decided => call($backend, decide => {name => "mails"}, json => {identity => {account => 42}}),
  forbidden => call($support, createKey => {}, json => {consumer => 'other'}),
  mistaken => call($backend, createKey => {}, json => {label => 'without a consumer'}),
});
