"""The public face: the OpenAI-compatible ingress in front of the two pools."""
