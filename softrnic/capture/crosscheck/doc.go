// Package crosscheck decodes a frame twice, by package wire and by gopacket with the layers of
// softrnic/wire/dissect, and reports the first field on which the two decoders differ. The decoders
// share no code, so a difference is a defect of one of them. The package does the same for messages
// of 1RMA (package onerma/nic), with packages softrnic/wire/onerma and softrnic/wire/onerma/dissect. The tests of both
// decoders use it, and `rdmalab dump --verify` calls it for every packet.
package crosscheck
