"""Random settings and odd data: is everything refused with a sentence, or does it work?"""
