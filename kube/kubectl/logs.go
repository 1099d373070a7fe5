package kubectl

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
)

func (o *options) logsCmd() *cobra.Command {
	opts := new(corev1.PodLogOptions)
	cmd := &cobra.Command{
		Use: "logs RACK HOST|LEAF", Short: "Print the log of a host or of a leaf", Args: cobra.ExactArgs(2),
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
			return c.logs(cmd.Context(), p, opts, cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVarP(&opts.Follow, "follow", "f", false, "go on printing new lines until interrupted")
	cmd.Flags().BoolVar(&opts.Previous, "previous", false, "that of the container before the last restart")
	return cmd
}

// logs copies the log of a Pod.
func (c *cluster) logs(ctx context.Context, p *corev1.Pod, opts *corev1.PodLogOptions, out io.Writer) error {
	stream, err := c.set.CoreV1().Pods(p.Namespace).GetLogs(p.Name, opts).Stream(ctx)
	if err != nil {
		return err
	}
	defer stream.Close() // it was only read
	if _, err := io.Copy(out, stream); err != nil && ctx.Err() == nil {
		return fmt.Errorf("the log of %s broke off: %w", p.Name, err)
	}
	return nil
}
