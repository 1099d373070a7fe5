package kubectl

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func (o *options) crashCmd() *cobra.Command {
	return &cobra.Command{
		Use: "crash RACK HOST|LEAF", Short: "Crash a host or a leaf; its container starts again: a host with empty memory, a leaf with its links", Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.open()
			if err != nil {
				return err
			}
			v, err := c.look(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			p, err := v.pod(args[1])
			if err != nil {
				return err
			}
			if !running(p) {
				return fmt.Errorf("the container of %s does not run: see `%s logs --previous %s %s`", args[1], c.typed, args[0], args[1])
			}
			said := c.inPod(cmd.Context(), p, nil, nil, nil, "crash") // its container may end before it has answered
			if err := c.awaitCrash(cmd.Context(), p); err != nil {
				return errors.Join(fmt.Errorf("%s: %w", args[1], err), said)
			}
			what := "its memory is gone; the kubelet starts it again"
			if v.spec.IsSwitch(args[1]) {
				what = "the kubelet starts it again, with the same links"
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s has crashed: %s\n", args[1], what)
			return err
		},
	}
}

const (
	// crashWait bounds how long the cluster may take to see the end of a container; crashLook is the pause between two looks.
	crashWait = 30 * time.Second
	crashLook = 200 * time.Millisecond
)

// awaitCrash waits until the container of a Pod is another one, or none.
func (c *cluster) awaitCrash(ctx context.Context, before *corev1.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, crashWait)
	defer cancel()
	for {
		now := new(corev1.Pod)
		err := c.client.Get(ctx, client.ObjectKeyFromObject(before), now)
		switch {
		case apierrors.IsNotFound(err), err == nil && (now.UID != before.UID || restarts(now) > restarts(before) || !running(now)):
			return nil
		case err != nil:
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("its container has not ended within %v", crashWait)
		case <-time.After(crashLook):
		}
	}
}
