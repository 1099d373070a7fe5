package transform

import "github.com/rdmalab/rdmalab/softrnic/wire"

// ACK makes f an acknowledgement of all requests up to psn. p is the path to the requester, and psn
// is one of its PSNs. msn is the number of messages that the connection has completed. The ACK
// grants no credits (IBTA 9.7.7.2), because only the responder knows them.
func (p *Path) ACK(f *wire.Frame, psn wire.PSN, msn uint32) {
	p.packet(f, wire.RCAck, psn)
	f.AETH = wire.AETH{Syndrome: wire.AckNoCredits, MSN: msn & msnMask}
}

// AtomicACK makes f the response to an atomic; prior is the original value of the word.
func (p *Path) AtomicACK(f *wire.Frame, psn wire.PSN, msn uint32, prior uint64) {
	p.packet(f, wire.RCAtomicAck, psn)
	f.AETH = wire.AETH{Syndrome: wire.AckNoCredits, MSN: msn & msnMask}
	f.AtomicAck = prior
}

// Written makes f the response to an ATOMIC_WRITE or a FLUSH: a READ response without payload.
func (p *Path) Written(f *wire.Frame, psn wire.PSN, msn uint32) {
	p.packet(f, wire.RCReadResponseOnly, psn)
	f.AETH = wire.AETH{Syndrome: wire.AckNoCredits, MSN: msn & msnMask}
}

// NAK makes f a negative acknowledgement with syndrome s. For wire.NakPSNSequence, psn is the
// expected PSN; otherwise it is the PSN of the request that failed (IBTA 9.7.5.2.8).
func (p *Path) NAK(f *wire.Frame, psn wire.PSN, msn uint32, s wire.Syndrome) {
	p.packet(f, wire.RCAck, psn)
	f.AETH = wire.AETH{Syndrome: s, MSN: msn & msnMask}
}

// EmptyWrite makes f an RDMA WRITE of no bytes: a request that changes no memory and takes one PSN.
func (p *Path) EmptyWrite(f *wire.Frame, psn wire.PSN, va uint64, rkey uint32) {
	p.packet(f, wire.RCWriteOnly, psn)
	f.BTH.AckReq = true
	f.RETH = wire.RETH{VA: va, RKey: rkey}
}

// packet makes f a new packet on the path, without payload.
func (p *Path) packet(f *wire.Frame, op wire.Opcode, psn wire.PSN) {
	*f = wire.Frame{}
	p.headers(f, psn)
	f.BTH = wire.BTH{Opcode: op, MigReq: p.MigReq, PKey: p.PKey, DestQP: p.DestQP, PSN: psn}
}
