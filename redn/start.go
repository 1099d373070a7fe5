package redn

import "github.com/rdmalab/rdmalab/softrnic/verbs"

// Start writes what was appended to queues into their rings, which lie in mr, and rings the
// doorbells of the queues that have one. qps are the queue pairs of the queues. The queues that
// start others come first: Start begins with the last queue of the list, so all requests are in
// memory when the first queue starts.
func Start(mr verbs.MR, queues []*Queue, qps []verbs.RingQP) error {
	for i := len(queues) - 1; i >= 0; i-- {
		q := queues[i]
		image, limit := q.Take()
		for _, piece := range image {
			if err := mr.WriteAt(piece.Bytes, int(q.Ring.Addr-mr.Addr())+piece.Off); err != nil {
				return err
			}
		}
		if !q.Managed {
			if err := qps[i].Doorbell(limit); err != nil {
				return err
			}
		}
	}
	return nil
}
