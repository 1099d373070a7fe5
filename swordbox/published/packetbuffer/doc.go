// Package packetbuffer keeps frames in the memory of servers as "Generic External Memory for Switch
// Data Planes" (HotNets 2018) describes it. It has the paper's holes, listed below, and so shows
// which cases package swordbox/packetbuffer handles. This package uses the queue of the port, the
// layout of the ring and the rule about the order of frames from that package.
//
//   - Nothing is retransmitted, and ACKs and NAKs are ignored. If a WRITE or a READ is lost, or
//     overtaken, the server answers no later request: no frame comes back, and as new frames must
//     stay behind those in the ring, the port stops.
//   - As many READs are in flight as the key 'depth' of the rule says, and each response triggers the
//     next READ. The paper does not say how many there are; its rate of 37.4 Gb/s needs five at the
//     round trip of the model. Each lost response takes away one of them; when none is left, the port
//     stops, too.
//   - Any READ response counts as the answer to the oldest READ in flight. After a lost response all
//     later frames take the place of the one before. A response that arrives twice puts a frame into the
//     place of another one.
//   - The switch does not check that an entry that comes back is the one for which it has asked. After
//     the restart of a server, other bytes may leave as frames.
//   - The switch does not know which frames were lost.
package packetbuffer
