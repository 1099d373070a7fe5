// Package telemetry has the arithmetic of counting packets by their headers: the key of a frame
// (Key), which frames are counted (Sampler), the counters of a key in a sketch (Sketch), and what a
// copy of these counters says about a key (Reading). Package statestore keeps the counters in the
// memory of servers; `rdmalab switch heavy` reads them.
//
// Contract. The package has no state but a Sampler's. A frame of any protocol has a key; Parse does
// not fail. A Sketch only ever adds to its counters, so the same counters serve two estimators:
//
//   - count-min (Cormode and Muthukrishnan, 2005): the least counter of a key is at least the true
//     count, and with a probability of at least 1 - e to the power of -Rows above it by at most
//     e/Width of the sum of all counts.
//   - Count Sketch (Charikar, Chen and Farach-Colton, 2002), with Width/2 counters in a row: the
//     signed counter of the paper is the difference of two neighbours, and the lowest bit of a key's
//     place is its sign. The median over the rows has no bias.
//
// The package does not correct estimates for sampling: multiply by Sampler.Every.
package telemetry
